package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Report lists the blobs of a hub and their problems.
type Report struct {
	Container  string           `json:"container"`
	Partitions []PartitionBlobs `json:"partitions"`
	Problems   []Problem        `json:"problems"`
}

// Remaining returns the number of unrepaired problems.
func (r *Report) Remaining() (n int) {
	for _, p := range r.Problems {
		if !p.Repaired {
			n++
		}
	}
	return n
}

// Repair looks for missing blobs of a hub, and for damage in its logs and in its base files, which it
// reads completely. If apply is true, it makes the repairs that the report names. It never deletes or
// overwrites a blob. It fails with [ErrNoHub] if the hub does not exist. It fails with
// [provider.ErrHubBusy] if a process owns a partition whose mailbox needs a repair; the report then
// shows which repairs were made.
func Repair(ctx context.Context, connection azurestorage.Connection, cfg Config, apply bool) (r *Report, err error) {
	h, err := Open(connection, cfg)
	if err != nil {
		return nil, err
	}
	r = &Report{Container: h.blobs.Name, Problems: []Problem{}}
	err = h.examine(ctx, r, apply)
	if err == nil && apply {
		err = h.repairMail(ctx, r)
	}
	if err = errors.Join(err, h.Close()); err != nil {
		err = fmt.Errorf("repair task hub %s: %w", h.cfg.TaskHub, err)
	}
	return r, err
}

// examine looks for problems. If apply is true, it creates a missing hub.json.
func (h *Hub) examine(ctx context.Context, r *Report, apply bool) error {
	blobs, _, err := h.blobs.ListInfo(ctx, "")
	if store.IsContainerMissing(err) {
		err = ErrNoHub
	}
	if err != nil {
		return err
	}
	info, _, err := h.readInfo(ctx)
	if store.IsNotFound(err) {
		p, records := lostInfo(blobs, h.cfg.PartitionCount)
		if !records {
			return ErrNoHub
		}
		all := inventories(blobs, "")
		if p.info == nil { // no log can be read
			for _, n := range slices.Sorted(maps.Keys(all)) {
				r.Partitions = append(r.Partitions, all[n].counts(n))
			}
			r.Problems = append(r.Problems, p)
			return nil
		}
		info, err = *p.info, nil
		if apply {
			err = h.writeInfo(ctx, info)
			p.Repaired = err == nil
		}
		r.Problems = append(r.Problems, p)
	}
	if err != nil {
		return err
	}
	if info.Partitions != h.cfg.PartitionCount {
		return &azurestorage.PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: h.cfg.PartitionCount, Existing: info.Partitions}
	}
	h.id, h.chains = info.ID, info.Chains
	facts := make([]logFacts, len(h.partitions))
	for n, s := range h.partitions {
		if facts[n], err = s.facts(ctx); err != nil {
			return err
		}
	}
	if blobs, _, err = h.blobs.ListInfo(ctx, ""); err != nil { // a running worker may have created blobs meanwhile
		return err
	}
	all := inventories(blobs, h.id)
	for n, s := range h.partitions {
		r.Partitions = append(r.Partitions, all[n].counts(n))
		r.Problems = append(r.Problems, problemsOf(n, all[n], s.hadLog(blobs), facts[n])...)
	}
	return nil
}

// facts reads the log of the partition without changing it.
func (s *partitionHandle) facts(ctx context.Context) (f logFacts, err error) {
	cfg := s.logConfig()
	cfg.Confirm, cfg.Missing = nil, nil // hub.json may be missing
	v, err := s.followLog(ctx, cfg)
	switch {
	case errors.Is(err, bloblog.ErrNoLog):
		return f, nil
	case isDamage(err) || errors.As(err, new(*runs.ManifestError)):
		return logFacts{damage: err}, nil
	case err != nil:
		return f, err
	}
	f.named = v.base.Names()
	if f.damaged, err = v.base.Damage(ctx); err != nil {
		return f, errors.Join(err, v.base.Close())
	}
	stored, err := v.reader.MailPosition()
	if err == nil {
		f.position, err = positionOf(stored)
	}
	if errors.Is(err, runs.ErrGone) || errors.As(err, new(*runs.DamageError)) {
		f.unread, err = err, nil
	}
	return f, errors.Join(err, v.base.Close())
}

// repairMail repairs the mailboxes with problems.
func (h *Hub) repairMail(ctx context.Context, r *Report) error {
	for i, p := range r.Problems {
		if p.mail == nil {
			continue
		}
		if p.mail.to != (mailbox.Position{}) {
			if err := h.partitions[p.mail.partition].repairMail(ctx, *p.mail); err != nil {
				return err
			}
		}
		r.Problems[i].Repaired = true
	}
	return nil
}

// repairMail moves the partition to another position of its mailbox.
func (s *partitionHandle) repairMail(ctx context.Context, m mailboxRepair) error {
	o, err := s.acquire(ctx)
	if held := (*bloblog.HeldError)(nil); errors.As(err, &held) {
		return fmt.Errorf("%w: %w", provider.ErrHubBusy, held)
	}
	if err != nil {
		return err
	}
	if m.create > 0 {
		_, _, err = chain.New(s.hub.blobs, s.hub.id, s.prefix+"mail-", s.hub.confirm).Create(ctx, m.create)
	}
	if err == nil {
		c := &logstore.Coder{}
		m.to.Code(c)
		err = o.Receive(ctx, nil, c.Buf)
	}
	return errors.Join(err, s.close())
}
