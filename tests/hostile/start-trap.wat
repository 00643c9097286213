;; world: validator
;; Traps in its start function.
(start $trap)
(func $trap unreachable)
