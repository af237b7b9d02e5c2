package partitionlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
)

func TestLostInfo_UsesTheMetadataOfTheBlobs(t *testing.T) {
	blob := func(name, hub string, size int64) store.BlobInfo {
		return store.BlobInfo{Name: name, Size: size, Metadata: map[string]string{"hub": hub}}
	}
	for name, tt := range map[string]struct {
		blobs   []store.BlobInfo
		records bool
		id      string // of the created hub.json
		lost    string
	}{
		"nothing":                       {nil, false, "", ""},
		"empty blobs":                   {[]store.BlobInfo{blob("p00/log-0000000001", "a", 0), blob("workers/w", "a", 1)}, false, "", ""},
		"a log":                         {[]store.BlobInfo{blob("p00/log-0000000001", "a", 9), blob("p03/mail-0000000001", "a", 9)}, true, "a", "nothing"},
		"empty blobs of a deleted hub":  {[]store.BlobInfo{blob("p00/log-0000000001", "a", 9), blob("p01/log-0000000001", "b", 0)}, true, "a", "nothing"},
		"no ID":                         {[]store.BlobInfo{blob("p00/log-0000000001", "", 9), blob("p00/base-0000000001-a", "", 9)}, true, "", "no blob names the ID"},
		"two IDs":                       {[]store.BlobInfo{blob("p00/log-0000000001", "b", 9), blob("p01/log-0000000001", "a", 9)}, true, "", "different hubs, with the IDs a and b"},
		"more partitions than expected": {[]store.BlobInfo{blob("p04/log-0000000001", "a", 9)}, true, "", "configured for 4 partitions, and partition 4 exists"},
	} {
		p, records := lostInfo(tt.blobs, 4)
		id := ""
		if p.info != nil {
			id = p.info.ID
		}
		if records != tt.records || records && (id != tt.id || !strings.Contains(p.Lost, tt.lost) || (p.Repair == "") != (id == "")) {
			t.Errorf("%s: records %v, %+v; want records %v, ID %q, lost %q", name, records, p, tt.records, tt.id, tt.lost)
		}
	}
}

func TestMailProblem_ContinuesAtTheNextMail(t *testing.T) {
	type sizes = map[uint64]int64
	at := func(blob, offset uint64) logFacts {
		return logFacts{position: mailbox.Position{Blob: blob, Offset: offset}}
	}
	for name, tt := range map[string]struct {
		mail   sizes
		unused bool
		facts  logFacts
		what   string // empty for no problem
		to     mailbox.Position
		create uint64
	}{
		"whole":                           {mail: sizes{2: 10, 3: 0}, facts: at(2, 10)},
		"new":                             {mail: sizes{1: 0}},
		"never used":                      {unused: true},
		"used, according to the position": {unused: true, facts: at(3, 0), what: "p01/mail-0000000003: the mailbox blob", to: mailbox.Position{Blob: 4}, create: 4},
		"all of a new mailbox":            {what: "p01/mail-0000000001: the mailbox blob", to: mailbox.Position{Blob: 2}, create: 2},
		"all":                             {facts: at(7, 5), what: "p01/mail-0000000007: the mailbox blob", to: mailbox.Position{Blob: 8}, create: 8},
		"all but older ones":              {mail: sizes{5: 9}, facts: at(7, 5), what: "p01/mail-0000000007: the mailbox blob", to: mailbox.Position{Blob: 8}, create: 8},
		"all but a newer one":             {mail: sizes{9: 0}, facts: at(7, 5), what: "p01/mail-0000000007: the mailbox blob", to: mailbox.Position{Blob: 9}},
		"a blob after a gap":              {mail: sizes{7: 5, 9: 5}, facts: at(7, 5), what: "p01/mail-0000000008: missing between"},
		"the end of a blob":               {mail: sizes{7: 4}, facts: at(7, 5), what: "p01/mail-0000000007: the partition received 5 bytes of mail, but the blob has only 4"},
		"all, with a damaged log":         {facts: logFacts{damage: errors.New("damaged")}, what: "p01/mail-0000000001: all blobs"},
		"unknown, with a damaged log":     {mail: sizes{3: 1}, facts: logFacts{damage: errors.New("damaged")}},
		"unknown, with a lost base":       {mail: sizes{3: 1}, facts: logFacts{unread: errors.New("gone")}},
	} {
		p, damaged := mailProblem(1, inventory{log: sizes{1: 1}, mail: tt.mail}, !tt.unused, tt.facts)
		var m mailboxRepair
		if p.mail != nil {
			m = *p.mail
		}
		if damaged != (tt.what != "") || !strings.HasPrefix(p.What, tt.what) || m.to != tt.to || m.create != tt.create || (p.Repair == "") != (p.mail == nil) {
			t.Errorf("%s: %v, %+v, %+v; want %q, %+v, create %d", name, damaged, p, m, tt.what, tt.to, tt.create)
		}
	}
}
