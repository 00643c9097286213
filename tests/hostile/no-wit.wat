;; no world
;; Has all exports, but no WIT for them.
