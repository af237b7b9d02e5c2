package hubfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

func TestOpen_RefusesNetworkFileSystemsUnlessForced(t *testing.T) {
	for magic, name := range map[uint32]string{
		0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB2", 0xFF534D42: "CIFS", // network
		0xEF53: "", 0x01021994: "", 0x794C7630: "", 0x9123683E: "", // ext4, tmpfs, overlay, btrfs
	} {
		for _, force := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "hub.db")
			f, err := Open(path, Options{
				Tables: logstore.Tables{}, AllowNetwork: force,
				statfs: func(string) (uint32, bool) { return magic, true },
			})
			refusal, refused := errors.AsType[*NetworkError](err)
			if want := name != "" && !force; refused != want || refused && refusal.FileSystem != name {
				t.Errorf("file system %#x, forced %v: %v; want a refusal: %v", magic, force, err, want)
			}
			if _, statErr := os.Stat(path); refused && !errors.Is(statErr, os.ErrNotExist) {
				t.Errorf("file system %#x: a file was created", magic)
			}
			if f != nil {
				_ = f.Close()
			}
		}
	}
}

func TestCheckLocal_AllowsFilesOfUnknownPlatforms(t *testing.T) {
	if err := checkLocal("hub.db", func(string) (uint32, bool) { return 0x6969, false }); err != nil {
		t.Error(err)
	}
	if err := checkLocal(filepath.Join(t.TempDir(), "hub.db"), fileSystemOf); err != nil {
		t.Errorf("the temporary folder: %v", err)
	}
}
