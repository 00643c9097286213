;; world: validator
;; Fills 150 MB with ones in `configure`. The memory limit allows that, but not a snapshot of it.
(memory (export "memory") 2400)
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
    (memory.fill (i32.const 65536) (i32.const 1) (i32.const 157220864))
    (i32.const 256))
