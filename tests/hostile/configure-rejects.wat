;; world: validator
;; Rejects all settings, with one error at `/colour`.
(data (i32.const 1024) "/colour" "must be red or green")
(data (i32.const 1064) "\01\00\00\00\00\04\00\00\07\00\00\00" "\07\04\00\00\14\00\00\00")
(data (i32.const 1100) "\01\00\00\00\28\04\00\00\01\00\00\00")
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32) (i32.const 1100))
