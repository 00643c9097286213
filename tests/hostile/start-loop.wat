;; world: validator
;; Loops endlessly in its start function.
(start $loop)
(func $loop (loop $again (br $again)))
