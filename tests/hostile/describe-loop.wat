;; world: validator
;; Loops endlessly in `describe`.
(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32)
    (loop $again (br $again))
    unreachable)
