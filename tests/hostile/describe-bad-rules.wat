;; world: validator
;; Has a rule for an operation that Kubernetes does not have. Loaded without a `match` in the configuration.
(data (i32.const 1024) "EVERYTHING")
(data (i32.const 1040) "\00\04\00\00\0a\00\00\00")
;; One rule in which all four lists hold that word.
(data (i32.const 1056) "\10\04\00\00\01\00\00\00" "\10\04\00\00\01\00\00\00" "\10\04\00\00\01\00\00\00"
    "\10\04\00\00\01\00\00\00")
;; A manifest without a name: rules are at 36.
(data (i32.const 1164) "\20\04\00\00\01\00\00\00")
(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32) (i32.const 1128))
