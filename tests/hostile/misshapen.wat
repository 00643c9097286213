;; component
;; Exports the contract's interfaces by name, but they are empty.
(component
    (instance $empty)
    (export "tollgate:admission/lifecycle@0.1.0" (instance $empty))
    (export "tollgate:admission/validating@0.1.0" (instance $empty)))
