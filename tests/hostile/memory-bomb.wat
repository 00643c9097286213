;; world: validator
;; Grows its memory as long as possible.
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (drop (memory.grow (i32.const 16)))
        (br $again))
    unreachable)
