;; world: validator
;; Writes 30 MB with one instruction, in a loop. No tick can interrupt that instruction.
(memory (export "memory") 480)
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (memory.fill (i32.const 0) (i32.const 1) (i32.const 31457280))
        (br $again))
    unreachable)
