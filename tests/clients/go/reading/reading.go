// Package reading has the reads of the Go clients, and their results. See ../python/reading.py.
package reading

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	pause  = 10 * time.Millisecond
	stride = 7919
	spell  = 2.0
)

var tables = []string{"people", "prices"}

type failures struct {
	Kind  string  `json:"kind"`
	Count int     `json:"count"`
	Since float64 `json:"since"`
	Until float64 `json:"until"`
	Text  string  `json:"text"`
}

// Reading holds the reads of a client, and their results.
type Reading struct {
	Replicas  bool     `json:"-"`
	Addresses []string `json:"-"`
	// The client sends an MGET over slots as several commands.
	Splits bool `json:"-"`

	Client  string         `json:"client"`
	Version string         `json:"version"`
	Variant string         `json:"variant"`
	Reads   int            `json:"reads"`
	Wrong   int            `json:"wrong"`
	Parts   int            `json:"parts"`
	Spells  []*failures    `json:"spells"`
	Longest int64          `json:"longest_pause_ms"`
	Last    map[string]int `json:"last"`

	groups, versions int
	answeredAt       time.Time
}

// New takes the arguments of the command line. It reports the version of the client's module.
func New(client, module string, splits bool) *Reading {
	r := &Reading{Client: client, Variant: os.Args[1], Splits: splits}
	r.Replicas = r.Variant == "replicas"
	r.Addresses = strings.Split(os.Args[2], ",")
	r.groups, _ = strconv.Atoi(os.Args[3])
	r.versions, _ = strconv.Atoi(os.Args[4])
	r.Last, r.Spells = map[string]int{}, []*failures{}
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			r.Version = strings.TrimPrefix(one.Version, "v")
		}
	}
	return r
}

// In turn: a GET of each table, an MGET of one slot, and an MGET over slots.
func (r *Reading) keys(count int) []string {
	group, kind := count*stride%r.groups, count%4
	if kind < 2 {
		return []string{fmt.Sprintf("%s:{%d}:%d", tables[kind], group, kind)}
	}
	var keys []string
	if kind == 2 {
		for i := range 4 {
			keys = append(keys, fmt.Sprintf("people:{%d}:%d", group, i))
		}
		return keys
	}
	for i := range 8 {
		keys = append(keys, fmt.Sprintf("%s:{%d}:%d", tables[i%2], (group+i)%r.groups, i%4))
	}
	return keys
}

// OneSlot reports whether all keys have the same hash tag.
func OneSlot(keys []string) bool {
	for _, key := range keys {
		if strings.Split(key, ":")[1] != strings.Split(keys[0], ":")[1] {
			return false
		}
	}
	return true
}

// Loop reads by get and mget until standard input ends, and prints the results.
func (r *Reading) Loop(get func(string) (string, error), mget func([]string) ([]string, error)) {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for count := 1; !over.Load(); count++ {
		keys := r.keys(count)
		var values []string
		var err error
		if len(keys) == 1 {
			values = make([]string, 1)
			values[0], err = get(keys[0])
		} else {
			values, err = mget(keys)
		}
		if err != nil {
			r.failed(kindOf(err), err.Error())
		} else {
			r.answered(keys, values)
		}
		time.Sleep(pause)
	}
	line, _ := json.Marshal(r)
	fmt.Println(string(line))
}

func (r *Reading) answered(keys, values []string) {
	now := time.Now()
	if r.answeredAt.IsZero() {
		fmt.Println("reading")
	} else {
		r.Longest = max(r.Longest, now.Sub(r.answeredAt).Milliseconds())
	}
	r.answeredAt = now
	r.Reads++
	if len(values) != len(keys) {
		r.isWrong(fmt.Sprintf("%d values for %v", len(values), keys))
		return
	}
	seen, mixed := map[string]int{}, false
	for i, key := range keys {
		found, text, _ := strings.Cut(values[i], " ")
		version, err := strconv.Atoi(text)
		if found != key || err != nil || version < 1 || version > r.versions {
			r.isWrong(fmt.Sprintf("%s: %q", key, values[i]))
			return
		}
		table, _, _ := strings.Cut(key, ":")
		before, there := seen[table]
		mixed = mixed || there && before != version
		seen[table] = version
	}
	switch {
	case !mixed:
		for table, version := range seen {
			r.Last[table] = version
		}
	case r.Splits && !OneSlot(keys):
		// The client's own doing: its parts are commands of their own.
		r.Parts++
	default:
		r.isWrong(fmt.Sprintf("two versions: %v", values))
	}
}

func (r *Reading) isWrong(text string) {
	r.Wrong++
	r.failed("wrong answer", text)
}

func (r *Reading) failed(kind, text string) {
	now := float64(time.Now().UnixMilli()) / 1000
	for i := len(r.Spells) - 1; i >= 0; i-- {
		if one := r.Spells[i]; one.Kind == kind && now-one.Until < spell {
			one.Count++
			one.Until = now
			return
		}
	}
	r.Spells = append(r.Spells, &failures{kind, 1, now, now, text[:min(len(text), 300)]})
}

var errorCode = regexp.MustCompile(`^[A-Z]+ `)

// kindOf returns the first word of a server's error, or the type of another error.
func kindOf(err error) string {
	if code := errorCode.FindString(err.Error()); code != "" {
		return strings.TrimSpace(code)
	}
	return reflect.TypeOf(err).String()
}
