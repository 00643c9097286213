;; world: validator
;; Throws and catches endlessly. The heap with the exceptions is never swept.
(tag $e (param i64 i64 i64 i64))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (block $caught (result i64 i64 i64 i64)
            (try_table (catch $e $caught)
                (throw $e (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)))
            (unreachable))
        (drop) (drop) (drop) (drop)
        (br $again))
    (unreachable))
