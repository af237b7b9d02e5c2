// Package golangci makes durablecheck a linter of golangci-lint, as a module
// plugin. It is linked into a golangci-lint of one's own, which
// `golangci-lint custom` builds as .custom-gcl.yml says:
//
//	version: v2.15.0
//	plugins:
//	  - module: github.com/durablefunctions-go/durablefunctions
//	    import: github.com/durablefunctions-go/durablefunctions/durable/durablecheck/golangci
//	    version: latest
//
// In .golangci.yml it is then enabled as other linters are:
//
//	version: "2"
//	linters:
//	  enable: [durablecheck]
//	  settings:
//	    custom:
//	      durablecheck:
//	        type: module
//	issues:
//	  uniq-by-line: false # else one finding a line is shown
//
// No program needs to import this package.
package golangci

import (
	"errors"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"
)

func init() { register.Plugin(durablecheck.Analyzer.Name, newPlugin) }

// newPlugin is what golangci-lint calls with the settings of the linter, nil if
// .golangci.yml has none.
func newPlugin(settings any) (register.LinterPlugin, error) {
	if settings != nil {
		return nil, errors.New("durablecheck has no settings; //durablecheck:ignore comments in the code say what may be")
	}
	return plugin{}, nil
}

// plugin is the linter.
type plugin struct{}

var _ register.LinterPlugin = plugin{}

// BuildAnalyzers returns durablecheck.
func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{durablecheck.Analyzer}, nil
}

// GetLoadMode says that durablecheck needs types.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
