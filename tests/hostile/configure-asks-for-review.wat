;; world: validator
;; Reads the review in `configure`, where there is none.
(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
    (call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1024))
    (i32.const 256))
