;; world: validator
;; Traps before anything of it can be called.
(start $trap)
(func $trap unreachable)
