;; component
;; Was built for a version of the contract that this host does not have.
(component
    (instance $empty)
    (export "tollgate:admission/lifecycle@0.9.0" (instance $empty)))
