// Package report presents the results of a run: a page, plots, and the README's part with numbers.
package report

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// The files of a report. It also has <figure>-<theme>.svg.
const (
	Page = "index.html"
	Data = "results.json"
	CSV  = "results.csv"
)

// Write makes a report in a folder. It makes the folder if there is none.
func Write(r *result.Result, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := r.Save(filepath.Join(folder, Data)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	files, err := files(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// files are the files that are made from the data.
func files(r *result.Result) (map[string][]byte, error) {
	made := map[string][]byte{}
	for _, f := range figuresOf(r) {
		for _, t := range themes {
			d, err := f.draw(r, t)
			if err != nil {
				return nil, fmt.Errorf("plot %s: %w", f.Name, err)
			}
			if made[file(f, t)], err = d.svg(); err != nil {
				return nil, fmt.Errorf("plot %s: %w", f.Name, err)
			}
		}
	}
	var csv bytes.Buffer
	if err := r.WriteCSV(&csv); err != nil {
		return nil, err
	}
	page, err := page(r, made)
	if err != nil {
		return nil, err
	}
	made[CSV], made[Page] = csv.Bytes(), page
	return made, nil
}

func file(f figure, t theme) string { return f.Name + "-" + t.name + ".svg" }

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// A sheet is the data of the page.
type sheet struct {
	*result.Result
	Figures []picture
	Tables  []table
	Origin  string
	Safe    bool
}

type picture struct {
	Title, Sentence string
	Light           template.URL
	Dark            template.Srcset
}

type table struct {
	Name, About string
	Head        []string
	Rows        [][]string
}

// page returns the page, with the plots in it, so that it can be sent as one file.
func page(r *result.Result, plots map[string][]byte) ([]byte, error) {
	s := sheet{Result: r, Origin: origin(r), Safe: r.Overlaps() == 0}
	for _, f := range figuresOf(r) {
		s.Figures = append(s.Figures, picture{
			f.Title, f.Sentence,
			template.URL(inline(plots[file(f, themes[0])])), template.Srcset(inline(plots[file(f, themes[1])])),
		})
	}
	for _, w := range r.Workloads {
		t := table{Name: w.Name, About: w.About, Head: w.Head()}
		for _, c := range r.Of(w.Name) {
			t.Rows = append(t.Rows, w.Row(c))
		}
		s.Tables = append(s.Tables, t)
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, s)
	return out.Bytes(), err
}

// inline returns an image within the page. This program has drawn it, so the template may use it without escaping.
func inline(svg []byte) string {
	return "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg)
}

// origin says when, where and with which versions the results were measured.
func origin(r *result.Result) string {
	var modules []string
	for _, v := range r.Versions {
		modules = append(modules, strings.TrimPrefix(v.Module, "github.com/")+" "+v.Version)
	}
	kind := ""
	if r.Settings.Quick {
		kind = ", a quick look"
	}
	return fmt.Sprintf("%s%s: medians of %d × %v; %s, %d cores, %s, %s, Redis %s; %s.",
		r.Date.Format("2006-01-02"), kind, r.Settings.Rounds, r.Settings.Duration,
		r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go, r.Machine.Redis, strings.Join(modules, ", "))
}

// mainWorkload is the workload of the README's table.
func mainWorkload(r *result.Result) (result.Workload, error) {
	for _, w := range r.Workloads {
		if w.Name == workload.Main {
			return w, nil
		}
	}
	return result.Workload{}, fmt.Errorf("the report lacks the workload %s", workload.Main)
}
