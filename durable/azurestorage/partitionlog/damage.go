package partitionlog

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
)

// Problem describes damage to a hub.
type Problem struct {
	// What names the missing or damaged blobs.
	What string `json:"problem"`
	// Lost describes the unreadable data.
	Lost string `json:"lost"`
	// Repair describes the action of [Repair]. It is empty if the blobs must be restored.
	Repair string `json:"repair,omitempty"`
	// Repaired means that [Repair] has done so.
	Repaired bool `json:"repaired"`

	info *hubInfo       // content of the hub.json to create
	mail *mailboxRepair // repair of a mailbox
}

// mailboxRepair makes a receiver continue at another position of a mailbox.
type mailboxRepair struct {
	partition int
	to        mailbox.Position // the zero value leaves the position as it is
	create    uint64           // number of the blob to create; 0 for none
}

// PartitionBlobs counts the blobs of a partition.
type PartitionBlobs struct {
	Partition int       `json:"partition"`
	Log       BlobCount `json:"log"`
	Mailbox   BlobCount `json:"mailbox"`
	Base      BlobCount `json:"base"`
}

// BlobCount is a number of blobs and their total size in bytes.
type BlobCount struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// inventory lists the blobs of one partition: the sizes of log and mailbox blobs by number, and of
// base files by name.
type inventory struct {
	log, mail map[uint64]int64
	base      map[string]int64
}

func (i inventory) counts(partition int) PartitionBlobs {
	return PartitionBlobs{partition, countOf(i.log), countOf(i.mail), countOf(i.base)}
}

func countOf[K comparable](sizes map[K]int64) BlobCount {
	c := BlobCount{Blobs: len(sizes)}
	for _, size := range sizes {
		c.Bytes += size
	}
	return c
}

// partOf matches the names of blobs with the records of a partition.
var partOf = regexp.MustCompile(`^p(\d\d)/((log|mail|base)-(.*))$`)

// inventories groups the blobs of a container by partition. It skips blobs of hubs other than id.
// An empty id matches all hubs.
func inventories(blobs []store.BlobInfo, id string) map[int]inventory {
	all := make(map[int]inventory)
	for _, b := range blobs {
		part, of := partOf.FindStringSubmatch(b.Name), b.Metadata[chain.HubKey]
		if part == nil || id != "" && of != "" && of != id {
			continue
		}
		n, _ := strconv.Atoi(part[1])
		if all[n].log == nil {
			all[n] = inventory{map[uint64]int64{}, map[uint64]int64{}, map[string]int64{}}
		}
		number, _ := strconv.ParseUint(part[4], 10, 64)
		switch part[3] {
		case "log":
			all[n].log[number] = b.Size
		case "mail":
			all[n].mail[number] = b.Size
		case "base":
			all[n].base[part[2]] = b.Size
		}
	}
	return all
}

// lostInfo returns the problem of a container without hub.json, and whether the container has any
// records of a hub. The number of partitions is the configured one: an app with another number
// could not have used the hub.
func lostInfo(blobs []store.BlobInfo, configured int) (p Problem, records bool) {
	ids := make(map[string]bool)
	highest := 0
	for _, b := range blobs {
		part := partOf.FindStringSubmatch(b.Name)
		if part == nil || b.Size == 0 { // processes of a deleted hub may have left empty blobs
			continue
		}
		records = true
		n, _ := strconv.Atoi(part[1])
		highest = max(highest, n)
		if id := b.Metadata[chain.HubKey]; id != "" {
			ids[id] = true
		}
	}
	p.What = infoName + " is missing"
	switch all := slices.Sorted(maps.Keys(ids)); {
	case len(all) == 0:
		p.Lost = "all instances: no blob names the ID of the hub, without which no blob can be read"
	case len(all) > 1:
		p.Lost = "all instances: the blobs are of different hubs, with the IDs " + strings.Join(all, " and ")
	case highest >= configured:
		p.Lost = fmt.Sprintf("nothing, but the app is configured for %d partitions, and partition %d exists; set partitionCount to the hub's number of partitions, and repeat this", configured, highest)
	default:
		p.info = &hubInfo{Format: formatVersion, Partitions: configured, ID: all[0], Chains: created}
		p.Lost = "nothing"
		p.Repair = fmt.Sprintf("creates %s with the ID %s, which the blobs name, and %d partitions, as the app is configured", infoName, all[0], configured)
	}
	return p, records
}

// logFacts is the result of reading a partition's log.
type logFacts struct {
	damage   error               // reason why the log is unreadable
	named    []string            // files of the base
	damaged  []*runs.DamageError // damaged parts of these files
	unread   error               // reason why the mailbox position is unreadable
	position mailbox.Position
}

// problemsOf returns the problems of a partition. used means that it certainly had a log and a
// mailbox.
func problemsOf(partition int, has inventory, used bool, f logFacts) (all []Problem) {
	prefix := fmt.Sprintf("p%02d/", partition)
	instances := fmt.Sprintf("the instances of partition %d, until the blobs are restored", partition)
	if len(has.log) == 0 && used {
		base := countOf(has.base)
		all = append(all, Problem{
			What: prefix + "log-: all blobs of the log are missing",
			Lost: fmt.Sprintf("%s; its %d base files with %d bytes cannot be read without the log", instances, base.Blobs, base.Bytes),
		})
	}
	if damage, is := errors.AsType[*DamageError](f.damage); is {
		f.damage = damage
	}
	if f.damage != nil {
		all = append(all, Problem{What: f.damage.Error(), Lost: instances})
	}
	missing := slices.DeleteFunc(slices.Clone(f.named), func(name string) bool { _, exists := has.base[name]; return exists })
	if len(missing) > 0 {
		all = append(all, Problem{
			What: fmt.Sprintf("%s: missing, with %d of the %d files of the base", prefix+missing[0], len(missing), len(f.named)),
			Lost: fmt.Sprintf("the records of partition %d in these files, until they are restored", partition),
		})
	}
	all = append(all, blockProblems(partition, f.damaged)...)
	if p, damaged := mailProblem(partition, has, used, f); damaged {
		all = append(all, p)
	}
	return all
}

// blockProblems returns the problems of damaged parts of base files.
func blockProblems(partition int, damaged []*runs.DamageError) (all []Problem) {
	for _, d := range damaged {
		all = append(all, Problem{
			What: fmt.Sprintf("p%02d/%s: damaged at byte %d: %v", partition, d.File, d.Offset, d.Cause),
			Lost: fmt.Sprintf("some records of partition %d, until the file is restored; a list of instances names the affected range of IDs", partition),
		})
	}
	return all
}

// mailProblem returns the problem of a partition's mailbox.
func mailProblem(partition int, has inventory, used bool, f logFacts) (p Problem, damaged bool) {
	at := f.position
	at.Blob = max(at.Blob, 1)
	size, exists := has.mail[at.Blob]
	unknown := len(has.log) == 0 || f.damage != nil || f.unread != nil
	newest := at.Blob
	for number := range has.mail {
		newest = max(newest, number)
	}
	blob := func(number uint64) string { return fmt.Sprintf("p%02d/mail-%010d", partition, number) }
	untaken := fmt.Sprintf("mail that partition %d had not received: requests of clients and messages of other partitions. Instances that wait for it keep waiting", partition)
	switch {
	case unknown && len(has.mail) == 0 && used:
		return Problem{What: blob(1) + ": all blobs of the mailbox are missing", Lost: untaken}, true
	case unknown || len(has.mail) == 0 && !used && f.position == (mailbox.Position{}):
		return p, false
	case exists && size >= int64(at.Offset):
		return gap(has, at.Blob, newest, blob, untaken)
	case exists:
		return Problem{
			What:   fmt.Sprintf("%s: the partition received %d bytes of mail, but the blob has only %d", blob(at.Blob), at.Offset, size),
			Lost:   untaken,
			Repair: "lets the next owner of the partition read the blob again from its start, because the blob can have new mail",
			mail:   &mailboxRepair{partition: partition},
		}, true
	default:
		p = Problem{What: blob(at.Blob) + ": the mailbox blob that the partition reads next is missing"}
		p.mail = &mailboxRepair{partition: partition}
		for exists = false; !exists && p.mail.to.Blob <= newest; {
			p.mail.to.Blob = max(p.mail.to.Blob, at.Blob) + 1
			_, exists = has.mail[p.mail.to.Blob]
		}
		if !exists {
			p.mail.create = p.mail.to.Blob
		}
	}
	p.Lost = untaken
	p.Repair = "lets the partition continue at " + blob(p.mail.to.Blob)
	if p.mail.create > 0 {
		p.Repair = fmt.Sprintf("creates the mailbox blob %s, and lets the partition continue there", blob(p.mail.create))
	}
	return p, true
}

// gap returns the problem of a missing blob between two others. The partition first receives the
// mail before the gap.
func gap(has inventory, from, newest uint64, blob func(uint64) string, untaken string) (p Problem, damaged bool) {
	for number := from; number <= newest; number++ {
		if _, exists := has.mail[number]; !exists {
			return Problem{What: fmt.Sprintf("%s: missing between blobs of the mailbox; repeat this when a worker has received the mail before it", blob(number)), Lost: untaken}, true
		}
	}
	return p, false
}
