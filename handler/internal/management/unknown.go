package management

import (
	"fmt"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// warnOfStart returns what to tell who starts an orchestrator that this app does not
// know, empty if it does. An app that has no orchestrators starts those of others.
func (m *API) warnOfStart(name, version string) string {
	known := m.knownOrchestrators()
	if _, ok := m.registry.Orchestrator(name, version); ok || len(known) == 0 {
		return ""
	}
	return fmt.Sprintf("This app has no orchestrator named %s; it has %s. The instance fails if no other worker of the task hub has one.",
		quoteName(name, version), strings.Join(known, ", "))
}

func quoteName(name, version string) string {
	if version == "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q for version %q", name, version)
}

func (m *API) knownOrchestrators() []string {
	if m.registry == nil {
		return nil
	}
	return m.registry.Orchestrators()
}

// waitsFor says what an instance waits for that this app does not know, empty if
// nothing is known of such a thing.
func (m *API) waitsFor(state *provider.InstanceState) string {
	if state.Status.IsTerminal() {
		return ""
	}
	for _, f := range m.allWaiting() {
		if slices.Contains(f.Instances, state.Instance.InstanceID) {
			if f.Crashed {
				return fmt.Sprintf("Set aside: the %s %s has ended the process with a panic, again and again. Mend it, then suspend and resume the instance, or run hub crashes --forget.", f.Kind, quoteName(f.Name, f.Version))
			}
			return fmt.Sprintf("Waits for a worker that has %s %s.", withArticle(f.Kind), quoteName(f.Name, f.Version))
		}
	}
	if history.IsEntity(state.Instance.InstanceID) || len(m.knownOrchestrators()) == 0 {
		return ""
	}
	if _, ok := m.registry.Orchestrator(state.Name, state.Version); !ok {
		return fmt.Sprintf("This app has no orchestrator named %s.", quoteName(state.Name, state.Version))
	}
	return ""
}

func withArticle(kind string) string {
	return "an " + kind + " named" // an orchestrator, an activity, an entity
}

func (m *API) allWaiting() []durable.WaitingFunction {
	if m.waiting == nil {
		return nil
	}
	return m.waiting()
}
