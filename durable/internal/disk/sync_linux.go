package disk

import (
	"os"
	"syscall"
)

// dataSync waits until what was written to f is on the disk. It does without
// the times that f was changed, which would be a second write.
func dataSync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
