package disk

import (
	"os"
	"syscall"
)

// dataSync waits until the data written to f is on the disk. It does not write the modification
// time, which would cost a second write.
func dataSync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
