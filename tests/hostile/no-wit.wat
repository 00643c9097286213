;; no world
;; Has all exports and no WIT that would say what they are.
