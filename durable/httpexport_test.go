package durable

// WithHTTP returns a copy of the registry that sends HTTP requests with the
// configuration c, like a Worker.
func WithHTTP(r *Registry, c HTTPConfig) *Registry {
	cfg := r.worker
	cfg.HTTP = c
	return r.forWorker(cfg)
}
