;; world: validator
;; Loops before anything of it can be called.
(start $loop)
(func $loop (loop $again (br $again)))
