/* A page that was opened as a file may not start a worker, in which the search would run: it runs in a frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.held = [];
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => this.#open();
      this.frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      if (this.held === null) {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      } else {
        this.held.push(data);
      }
    }

    terminate() {
      this.frame.remove();
    }

    #open() {
      const held = this.held;
      this.held = null;
      held.forEach((data) => this.postMessage(data));
    }
  };
}
