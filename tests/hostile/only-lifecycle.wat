;; world: only-lifecycle
;; Has `describe` and `configure`, but neither `mutate` nor `validate`.
