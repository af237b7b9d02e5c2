package console

import (
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

var hubRoutes = []route{{method: http.MethodGet, path: "hub", serve: showHub, always: true}}

// A hubPage is the data of the page about the configuration. The page also works if the configuration
// is not valid.
type hubPage struct {
	Configuration management.Configuration
	Functions     []durable.RegisteredFunction
	Load          *management.ScalePayload // nil if the hub does not report it
}

func showHub(v *visit) error {
	p := hubPage{Configuration: v.console.cfg.API.Configuration()}
	if v.hub.Registry != nil {
		p.Functions = v.hub.Registry.Functions()
	}
	if v.console.state.Check() == nil {
		now, err := currentHub(v)
		if err != nil {
			return err
		}
		p.Load = now.Load
	}
	return v.page("hub", "Hub", p)
}
