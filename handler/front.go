package handler

// A frontConfig says where a server listens, and which requests it takes.
type frontConfig struct {
	Address          string // that the server listens on
	BehindHost       bool   // requests come through the Functions host
	RoutePrefix      string
	SiteHostname     string // the public one, if requests do not tell it
	UseForwardedHost bool   // X-Forwarded-Host and -Proto count standalone, too
	LocalOnly        bool   // only this machine should call the app, and it asks for no key

	MaxBody, MaxBodies int64 // bytes of one request's body, and of all at once
}

// A front is what all requests pass first: it finds out whether they are for the management
// API, refuses those that pages of other sites send, and bounds their bodies.
type front struct {
	cfg    frontConfig
	bodies bodyRoom
}

// newFront returns a front by its configuration.
func newFront(cfg frontConfig) *front {
	f := &front{cfg: cfg}
	f.bodies.left.Store(max(cfg.MaxBodies, cfg.MaxBody))
	return f
}
