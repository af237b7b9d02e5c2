package sim

import (
	"time"
)

// idling bounds how long it takes until nothing is in use by workers for which there is
// nothing to do: sessions end, and requests are answered.
const idling = 2 * time.Minute
