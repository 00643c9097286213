// Checks Pods against the Pod Security Standards with the library of Kubernetes' own admission controller.
//
// Reads one Pod as JSON per line, and writes one object per line: for each level and version, such as "baseline:v1.24",
// the violations of the Pod. For an allowed Pod, the text is empty.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	kjson "sigs.k8s.io/json"
)

// newestMinor is the newest version that the library knows. It must equal the plugin's.
const newestMinor = 37

func standards() []api.LevelVersion {
	var all []api.LevelVersion
	for _, level := range []api.Level{api.LevelPrivileged, api.LevelBaseline, api.LevelRestricted} {
		for minor := 0; minor <= newestMinor; minor++ {
			all = append(all, api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)})
		}
		all = append(all, api.LevelVersion{Level: level, Version: api.LatestVersion()})
	}
	return all
}

func evaluate(evaluator policy.Evaluator, line []byte) (map[string]string, error) {
	var pod corev1.Pod
	// Decodes like kube-apiserver: names of members are case-sensitive.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &pod); err != nil {
		return nil, err
	}
	for i := range pod.Spec.Volumes {
		// kube-apiserver does this before any admission controller sees the Pod.
		if volume := &pod.Spec.Volumes[i]; volume.VolumeSource == (corev1.VolumeSource{}) {
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
	verdicts := map[string]string{}
	for _, standard := range standards() {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(standard, &pod.ObjectMeta, &pod.Spec))
		if result.Allowed {
			verdicts[standard.String()] = ""
		} else {
			verdicts[standard.String()] = result.ForbiddenDetail()
		}
	}
	return verdicts, nil
}

func run(in io.Reader, out io.Writer) error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	reader := bufio.NewReader(in)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			verdicts, err := evaluate(evaluator, line)
			if err != nil {
				return err
			}
			if err := encoder.Encode(verdicts); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
