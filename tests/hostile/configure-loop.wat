;; world: validator
;; Loops endlessly in `configure`.
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
    (loop $again (br $again))
    unreachable)
