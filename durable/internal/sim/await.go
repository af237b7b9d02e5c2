package sim

import (
	"time"
)

// idleTimeout limits the time until idle workers have released all resources: sessions end and requests are
// answered.
const idleTimeout = 2 * time.Minute
