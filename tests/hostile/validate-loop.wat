;; world: validator
;; Loops endlessly in `validate`.
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again (br $again))
    unreachable)
