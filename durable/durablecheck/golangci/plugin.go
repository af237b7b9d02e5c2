// Package golangci provides durablecheck as a linter of golangci-lint, as a module plugin. It is
// linked into a custom golangci-lint binary, which `golangci-lint custom` builds from .custom-gcl.yml:
//
//	version: v2.15.0
//	plugins:
//	  - module: github.com/durablefunctions-go/durablefunctions
//	    import: github.com/durablefunctions-go/durablefunctions/durable/durablecheck/golangci
//	    version: latest
//
// Enable the linter in .golangci.yml:
//
//	version: "2"
//	linters:
//	  enable: [durablecheck]
//	  settings:
//	    custom:
//	      durablecheck:
//	        type: module
//	issues:
//	  uniq-by-line: false # otherwise only one finding per line is shown
//
// Programs need not import this package.
package golangci

import (
	"errors"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"
)

func init() { register.Plugin(durablecheck.Analyzer.Name, newPlugin) }

// newPlugin returns the plugin. golangci-lint calls it with the settings of the linter, nil if
// .golangci.yml has none.
func newPlugin(settings any) (register.LinterPlugin, error) {
	if settings != nil {
		return nil, errors.New("durablecheck has no settings; use //durablecheck:ignore comments in the code to allow findings")
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

// GetLoadMode returns the load mode with types.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
