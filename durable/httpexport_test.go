package durable

// WithHTTP returns a registry of the same functions whose requests are made as c
// says, as a Worker's are.
func WithHTTP(r *Registry, c HTTPConfig) *Registry {
	s := r.worker
	s.http = c
	return r.forWorker(s)
}
