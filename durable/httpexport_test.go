package durable

// WithHTTP returns a copy of the registry that sends HTTP requests with the
// configuration c, like a Worker.
func WithHTTP(r *Registry, c HTTPConfig) *Registry {
	s := r.worker
	s.http = c
	return r.forWorker(s)
}
