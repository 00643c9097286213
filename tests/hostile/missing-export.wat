;; world: validator
;; Names the world `validator`, but lacks the function "tollgate:admission/validating@0.1.0#validate".
