;; world: validator
;; Allows, and then loops in post-return, after the host has read the verdict.
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 256))
(func (export "cabi_post_tollgate:admission/validating@0.1.0#validate") (param i32) (loop $again (br $again)))
