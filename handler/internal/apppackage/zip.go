package apppackage

import (
	"archive/zip"
	"compress/flate"
	"fmt"
	"io"
	"os"
	"time"
)

// epoch is the time of every file in the zip, the earliest that the format allows. Equal files give equal bytes.
var epoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// pack writes entries as a zip.
func pack(w io.Writer, entries []entry) error {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, e := range entries {
		if err := add(z, e); err != nil {
			return fmt.Errorf("add %s: %w", e.name, err)
		}
	}
	return z.Close()
}

func add(z *zip.Writer, e entry) error {
	h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: epoch}
	h.SetMode(0o644)
	if e.executable {
		h.SetMode(0o755)
	}
	w, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	f, err := os.Open(e.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	_, err = io.Copy(w, f)
	return err
}
