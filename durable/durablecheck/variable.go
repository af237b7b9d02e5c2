package durablecheck

import (
	"go/types"
)

var (
	writing = &advice{ruleVariable, "changes state that all instances and replays share", "keep the value in a local variable and return it"}
	reading = &advice{ruleVariable, "reads state that the program changes while it runs, so a replay may read another value", "pass the value in as input or read it in an activity"}
)

// A change is a way to change a variable.
type change int

const (
	assigned     change = iota // in whole or in part
	assignedPart               // in part
	addressed                  // through its address
	called                     // by a method
)

// dependsOnProcess reports whether operations of r return values that differ between processes.
func dependsOnProcess(r rule) bool {
	return r == ruleClock || r == ruleRandom || r == ruleEnv || r == ruleMapOrder
}

func isPackageLevel(v *types.Var) bool {
	return !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}
