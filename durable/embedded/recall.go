package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// recall brings into memory what is pending: messages, timers and activities.
// Of each it keeps where it goes, not what it says.
func (h *Hub) recall() error {
	return h.read("read what is pending", func(t tables) error {
		if err := h.recallMessages(t); err != nil {
			return err
		}
		if err := h.recallTimers(t); err != nil {
			return err
		}
		return h.recallActivities(t)
	})
}

var errKeyLength = errors.New("key has the wrong length")

// recallTable calls f with the records of a table, whose keys have a length.
func (t tables) recallTable(id logstore.Table, keyLength int, f func(key, value []byte) error) error {
	return t.Scan(id, "", func(k string, value []byte) (bool, error) {
		key, err := []byte(k), error(nil)
		if len(key) != keyLength {
			err = errKeyLength
		} else {
			err = f(key, value)
		}
		if err != nil {
			err = t.Damage(id, key, err)
		}
		return err != nil, err
	})
}

func (h *Hub) recallMessages(t tables) error {
	return t.recallTable(messagesTable, 8, func(key, value []byte) error {
		r, err := decodeRoute(value)
		if err == nil {
			h.deliver(&message{number: h.recallNumber(key), route: r})
		}
		return err
	})
}

func (h *Hub) recallTimers(t tables) error {
	return t.recallTable(timersTable, 16, func(key, value []byte) error {
		r, err := decodeRoute(value)
		if err == nil {
			m := &message{number: h.recallNumber(key[8:]), route: r}
			reading(key[:8]).Time(&m.due)
			h.wait(m)
		}
		return err
	})
}

func (h *Hub) recallActivities(t tables) error {
	return t.recallTable(activitiesTable, 8, func(key, value []byte) error {
		head, _, err := decodeActivityHead(value)
		if err != nil {
			return err
		}
		if head.crashes > h.file.Crashes {
			return fmt.Errorf("it is of a later time: %d of %d", head.crashes, h.file.Crashes)
		}
		// With each crash since, a delivery may have been forgotten.
		earlier := head.deliveries + h.file.Crashes - head.crashes
		h.offer(&activity{number: h.recallNumber(key), earlier: int(earlier)})
		return nil
	})
}

// recallNumber returns the number in a key. It is less than any new one.
func (h *Hub) recallNumber(key []byte) uint64 { return binary.BigEndian.Uint64(key) }
