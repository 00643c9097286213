;; world: no-lifecycle
;; Has `validate`, but neither `describe` nor `configure`.
