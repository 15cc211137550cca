package sqlstore

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Migrations are those of a store, by number: SQL files, whose names begin with it, and those that are code.
type Migrations map[int64]string

// NewMigrations returns the files of the folder migrations, which are embedded, and those that are code, with their
// names.
func NewMigrations(embedded fs.FS, code map[int64]string) Migrations {
	m := Migrations{}
	for version, name := range code {
		m[version] = fmt.Sprintf("%05d_%s", version, name)
	}
	files, _ := fs.ReadDir(embedded, "migrations")
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		if version, err := strconv.ParseInt(number, 10, 64); err == nil {
			m[version] = f.Name()
		}
	}
	return m
}

// Newest returns the version of the tables that the program was written for.
func (m Migrations) Newest() int64 { return slices.Max(slices.Collect(maps.Keys(m))) }

// Behind returns the names of the migrations that tables of a version lack, in order.
func (m Migrations) Behind(version int64) (names []string) {
	for _, v := range slices.Sorted(maps.Keys(m)) {
		if v > version {
			names = append(names, m[v])
		}
	}
	return names
}
