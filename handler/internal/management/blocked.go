package management

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func heldText(f durable.BlockedFunction) string {
	name := quoteName(f.Name, f.Version)
	switch {
	case f.Runs:
		return "Running: " + notYielding(f)
	case f.Crashed:
		return fmt.Sprintf("Set aside: the %s %s has repeatedly ended the process with a panic. Correct it, then suspend and resume the instance, or run hub crashes --forget.", f.Kind, name)
	case f.Differs:
		return fmt.Sprintf("Waits for matching code: the %s %s does not match the history. hub why shows the difference.", f.Kind, name)
	case f.Stalled:
		return fmt.Sprintf("The %s %s does not yield. It must wait for durable tasks only; the log has its stack. Correct it and restart the app, or suspend and resume the instance to run it again.", f.Kind, name)
	case f.Refusal != "":
		return fmt.Sprintf("Waits for a worker that accepts the %s %s. Reason: %s.", f.Kind, name, f.Refusal)
	}
	return fmt.Sprintf("Waits for a worker that has %s %s.", withArticle(f.Kind), name)
}

// notYielding describes a function that runs and does not yield.
func notYielding(f durable.BlockedFunction) string {
	name := quoteName(f.Name, f.Version)
	if f.Kind == "entity" {
		return fmt.Sprintf("the operation %q of entity %s does not return. The log has its stack.", f.Operation, name)
	}
	return fmt.Sprintf("the %s %s does not yield. It must wait for durable tasks only; the log has its stack. The app abandons it soon.", f.Kind, name)
}

func withArticle(kind string) string {
	return "an " + kind + " named" // all kinds start with a vowel
}

func quoteName(name, version string) string {
	if version == "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q for version %q", name, version)
}
