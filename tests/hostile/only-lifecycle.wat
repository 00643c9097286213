;; world: only-lifecycle
;; Can be described and configured, and neither mutates nor validates.
