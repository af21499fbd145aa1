"use strict";
// Lets a reader of a report look for examples. Without this script the page shows the
// first ones of each kind; the controls stay hidden.
{
  const STEP = 24; // cards that are shown at once
  const MEMBERS = 48; // runs that are listed
  const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
  const unpack = ({ type, bytes }) =>
    new globalThis[type](Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)).buffer);

  const explore = (root) => {
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    const control = (name) => root.querySelector(`[name="${name}"]`);
    const data = JSON.parse(part("data").textContent);
    const { runs, bins, tiles } = data;
    const [id, label, wrong, agree, classes, votes] = [
      "id", "label", "wrong", "agree", "classes", "votes",
    ].map((name) => unpack(data[name]));
    const nameOf = (c) => (data.class_names ? data.class_names[c] : c);
    const binned = bins && unpack(bins.wrong);
    const accuracy = bins && bins.accuracy && unpack(bins.accuracy);
    const shown = classes.length / id.length;
    const all = Array.from(id.keys());

    const votesOf = (i) => {
      const found = [];
      for (let k = i * shown; k < (i + 1) * shown; k++)
        if (votes[k]) found.push({ name: classes[k], share: votes[k] / runs, right: classes[k] === label[i] });
      return found;
    };
    const otherShare = (i) => Math.max(0, ...votesOf(i).filter((v) => !v.right).map((v) => v.share));

    // Runs of the chosen bins.
    const chosenRange = () => {
      const ends = [Number(control("low").value), Number(control("high").value)];
      return [Math.min(...ends), Math.max(...ends)];
    };
    const chosenRuns = () => {
      if (!bins) return null;
      const [low, high] = chosenRange();
      const count = bins.runs.slice(low, high + 1).reduce((a, b) => a + b, 0);
      if (!count || count === runs) return null;
      const of = new Float64Array(id.length);
      for (let b = low; b <= high; b++)
        for (let i = 0; i < of.length; i++) of[i] += binned[b * of.length + i];
      const gap = all.map((i) => {
        const p = wrong[i] / runs;
        const error = Math.sqrt(p * (1 - p) * (1 / count + 1 / (runs - count)));
        return error ? (of[i] / count - (wrong[i] - of[i]) / (runs - count)) / error : 0;
      });
      return { count, of, gap };
    };

    // Single runs. Their accuracies ascend, so those of a bin are neighbours.
    const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
    const firstOf = (b) => sum(bins.runs.slice(0, b));
    const seeds = Object.entries((bins && bins.seeds) || {}).map(([name, values]) => [name, unpack(values)]);
    const number = accuracy && unpack(bins.number);
    const runText = (r) =>
      [`run ${number[r]}`, ...seeds.map(([name, values]) => `${name} ${values[r]}`)].join(", ") +
      `: ${(100 * accuracy[r]).toFixed(2)}\u00a0%`;

    const listMembers = () => {
      const [low, high] = chosenRange();
      const [first, end] = [firstOf(low), firstOf(high + 1)];
      const texts = [];
      if (end - first < runs)
        for (let r = first; r < Math.min(end, first + MEMBERS); r++) texts.push(runText(r));
      if (texts.length && end - first > MEMBERS) texts.push(`and ${end - first - MEMBERS} more`);
      const items = texts.map((text) => {
        const item = document.createElement("li");
        item.textContent = text;
        return item;
      });
      part("members").replaceChildren(...items);
    };

    // A bar is a pile of its runs: the pointer's height says which one.
    const hover = (b, height) => {
      const [count, highest] = [bins.runs[b], Math.max(...bins.runs)];
      const place = Math.floor(height * highest);
      const marker = part("histogram").querySelector(".hovered");
      if (place >= count) {
        const range = [bins.edges[b], bins.edges[b + 1]].map(percent).join(" to ");
        part("hovered").textContent = `${count} ${count === 1 ? "run" : "runs"}, accuracy ${range}`;
        marker.setAttribute("height", 0);
        return;
      }
      part("hovered").textContent = runText(firstOf(b) + place);
      const thick = 10 / highest;
      const corner = { x: b + 0.04, y: 10 - (place + 1) * thick, width: 0.92, height: thick };
      for (const [name, value] of Object.entries(corner)) marker.setAttribute(name, value);
    };

    const card = (i, chosen) => {
      const made = part("card").content.cloneNode(true);
      const within = (name) => made.querySelector(`[data-part="${name}"]`);
      const called = data.ids ? data.ids[i] : `#${id[i]}`;
      within("title").textContent = `${called}, label ${nameOf(label[i])}`;
      const picture = within("picture");
      if (tiles && i < tiles.count) {
        const [x, y] = [i % tiles.columns, Math.floor(i / tiles.columns)];
        const scale = 80 / Math.max(tiles.width, tiles.height);
        picture.setAttribute("aria-label", `example ${id[i]}`);
        Object.assign(picture.style, {
          width: `${scale * tiles.width}px`,
          height: `${scale * tiles.height}px`,
          backgroundImage: `url(${tiles.address})`,
          backgroundSize: `${scale * tiles.width * tiles.columns}px auto`,
          backgroundPosition: `${-scale * tiles.width * x}px ${-scale * tiles.height * y}px`,
        });
      } else picture.remove();
      const found = votesOf(i);
      for (const { share, right } of found) {
        const bar = document.createElement("span");
        bar.className = right ? "right" : "";
        bar.style.width = `${100 * share}%`;
        within("votes").append(bar);
      }
      within("said").textContent = found.map((v) => `${nameOf(v.name)}: ${percent(v.share)}`).join(", ");
      within("text").textContent = chosen
        ? `wrong in ${percent(chosen.of[i] / chosen.count)} of the chosen runs, ` +
          `${percent((wrong[i] - chosen.of[i]) / (runs - chosen.count))} of the others`
        : `wrong in ${percent(wrong[i] / runs)}, agree ${percent(agree[i])}`;
      return made;
    };

    const share = (name, otherwise) => (control(name).value === "" ? otherwise : Number(control(name).value) / 100);
    let limit = STEP;

    const draw = () => {
      const chosen = chosenRuns();
      const [ofLabel, ofVote] = [control("label").value, control("voted").value];
      const [least, most, agreeing] = [share("least", 0), share("most", 1), share("agreeing", 1)];
      const keys = {
        hard: (i) => i, // their order in the page
        split: (i) => agree[i],
        mislabelled: (i) => -otherShare(i),
        apart: (i) => (chosen ? -Math.abs(chosen.gap[i]) : i),
        number: (i) => id[i],
      };
      const key = keys[control("sort").value];
      const found = all
        .filter((i) => {
          const rate = wrong[i] / runs;
          return (
            (ofLabel === "" || label[i] === Number(ofLabel)) &&
            (ofVote === "" || votesOf(i).some((v) => v.name === Number(ofVote) && !v.right)) &&
            rate >= least && rate <= most && agree[i] <= agreeing
          );
        })
        .map((i) => [key(i), i])
        .sort((a, b) => a[0] - b[0] || a[1] - b[1])
        .map(([, i]) => i);
      part("cards").replaceChildren(...found.slice(0, limit).map((i) => card(i, chosen)));
      part("more").hidden = found.length <= limit;
      const apart = chosen && found.filter((i) => Math.abs(chosen.gap[i]) > data.surprising).length;
      part("status").textContent =
        `${found.length.toLocaleString("en")} of ${data.examples.toLocaleString("en")} examples` +
        (chosen ? `; on ${apart} the chosen runs differ from the others by more than chance explains` : "");
      for (const button of part("confusions").children)
        button.ariaPressed = String(button.dataset.label === ofLabel && button.dataset.voted === ofVote);
      if (!bins) return;
      const [low, high] = chosenRange();
      if (accuracy) listMembers();
      [...part("histogram").children].slice(0, bins.runs.length).forEach((bar, b) => bar.classList.toggle("chosen", b >= low && b <= high));
      const range = [bins.edges[low], bins.edges[high + 1]].map(percent).join(" to ");
      part("range").textContent = `${chosen ? chosen.count : runs} of ${runs} runs, accuracy ${range}`;
      const said = (name, edge) => control(name).setAttribute("aria-valuetext", percent(edge));
      said("low", bins.edges[Number(control("low").value)]);
      said("high", bins.edges[Number(control("high").value) + 1]);
    };

    const choose = (low, high) => {
      control("low").value = low;
      control("high").value = high;
      const partly = low !== 0 || high !== bins.runs.length - 1;
      control("sort").value = partly ? "apart" : "hard";
      limit = STEP;
      draw();
    };

    const drawHistogram = () => {
      const svg = part("histogram");
      const [count, highest] = [bins.runs.length, Math.max(...bins.runs)];
      svg.setAttribute("viewBox", `0 0 ${count} 10`);
      bins.runs.forEach((n, b) => {
        const bar = document.createElementNS(svg.namespaceURI, "rect");
        const height = (10 * n) / highest;
        const place = { x: b + 0.04, y: 10 - height, width: 0.92, height };
        for (const [name, value] of Object.entries(place)) bar.setAttribute(name, value);
        svg.append(bar);
      });
      const marker = document.createElementNS(svg.namespaceURI, "rect");
      marker.setAttribute("class", "hovered");
      svg.append(marker);
      const binAt = (event) => {
        const box = svg.getBoundingClientRect();
        const place = Math.floor((count * (event.clientX - box.left)) / box.width);
        return Math.min(count - 1, Math.max(0, place));
      };
      let from = null;
      svg.addEventListener("pointerdown", (event) => {
        svg.setPointerCapture(event.pointerId);
        from = binAt(event);
        choose(from, from);
      });
      svg.addEventListener("pointermove", (event) => {
        if (from === null) {
          const box = svg.getBoundingClientRect();
          if (accuracy) hover(binAt(event), (box.bottom - event.clientY) / box.height);
          return;
        }
        const to = binAt(event);
        choose(Math.min(from, to), Math.max(from, to));
      });
      for (const end of ["pointerup", "pointercancel"])
        svg.addEventListener(end, () => (from = null));
      for (const name of ["low", "high"]) {
        control(name).max = count - 1;
        control(name).value = name === "low" ? 0 : count - 1;
        control(name).addEventListener("input", () => choose(...chosenRange()));
      }
    };

    const reset = () => {
      for (const name of ["label", "voted", "least", "most", "agreeing"]) control(name).value = "";
      control("sort").value = "hard";
      limit = STEP;
      if (bins) choose(0, bins.runs.length - 1);
      else draw();
    };

    const option = (value) => new Option(nameOf(value), value);
    control("label").append(...[...new Set(label)].sort((a, b) => a - b).map(option));
    control("voted").append(...[...new Set(classes)].sort((a, b) => a - b).map(option));
    const errors = data.errors;
    for (const [from, to, count] of data.confusions) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${nameOf(from)} → ${nameOf(to)}: ${percent(count / errors)}`;
      Object.assign(button.dataset, { label: from, voted: to });
      button.addEventListener("click", () => {
        const again = button.ariaPressed === "true";
        control("label").value = again ? "" : from;
        control("voted").value = again ? "" : to;
        limit = STEP;
        draw();
      });
      part("confusions").append(button);
    }
    if (bins) drawHistogram();
    for (const name of ["label", "voted", "least", "most", "agreeing", "sort"])
      control(name).addEventListener("input", () => {
        limit = STEP;
        draw();
      });
    part("more").addEventListener("click", () => {
      const first = limit;
      limit += STEP;
      draw();
      part("cards").children[first].focus();
    });
    part("reset").addEventListener("click", reset);
    root.hidden = false;
    draw();
  };

  document.querySelectorAll(".explore").forEach(explore);
}
