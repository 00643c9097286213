;; world: mutator
;; Loops endlessly in `mutate`.
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (loop $again (br $again))
    unreachable)
