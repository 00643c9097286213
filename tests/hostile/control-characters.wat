;; world: validator
;; Warns, annotates and denies with line ends, escape sequences, zeros and right-to-left text.
(import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
(import "tollgate:admission/review@0.1.0" "annotate" (func $annotate (param i32 i32 i32 i32)))
(import "tollgate:admission/logging@0.1.0" "log" (func $log (param i32 i32 i32)))
(data (i32.const 1024) "one\0atwo\0d\00\1b[31mred\c2\85\e2\80\ae end")
;; deny (1): that text.
(data (i32.const 1064) "\01\00\00\00" "\00\04\00\00\1a\00\00\00")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $warn (i32.const 1024) (i32.const 26))
    (call $annotate (i32.const 1024) (i32.const 26) (i32.const 1024) (i32.const 26))
    (call $log (i32.const 0) (i32.const 1024) (i32.const 26))
    (i32.const 1064))
