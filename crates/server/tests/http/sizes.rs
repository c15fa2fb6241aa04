//! Pages for people stay light, however much there is, and lead to the rest.

use serde_json::json;
use trackway_testkit::{House, engines};

use crate::visitor::Visitor;

/// Bytes of a page for people.
const PAGE_MAX: usize = 100_000;

engines! {
    fn a_run_shows_the_last_of_what_happened_and_leads_to_the_rest(house: House) {
        let run = house.agent("ada").starts();
        for number in 1..=230 {
            let detail = format!("step {number} {}", "said <much> ".repeat(60));
            run.act("record_step", json!({ "run": run.id, "type": "shell", "detail": detail })).unwrap();
        }
        for number in 1..=110 {
            run.act("create_note", json!({ "studio": "main", "title": format!("note {number} {}", "of some length ".repeat(8)) })).unwrap();
        }
        let visitor = Visitor::person(&house);
        let path = format!("/runs/{}", run.id);
        let page = visitor.html(&path).body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert!(page.contains("131 to 230 of 230 steps.") && page.contains("51 to 110 of 110 touches."), "{page}");
        assert!(page.contains("step 230 said") && !page.contains("step 130 said"));
        assert!(page.contains(&format!("href=\"{path}?steps_before=130\"")));

        let earlier = visitor.html(&format!("{path}?steps_before=130")).body;
        assert!(earlier.len() < PAGE_MAX, "{}", earlier.len());
        assert!(earlier.contains("step 31 said") && earlier.contains("step 130 said") && !earlier.contains("step 131 said"));
        let first = visitor.html(&format!("{path}?touches_before=10")).body;
        assert!(first.contains("1 to 10 of 110 touches.") && !first.contains("steps."), "{first}");
        assert_eq!(visitor.json(&path).data()["steps"].as_array().unwrap().len(), 230);
    }

    fn a_long_text_is_cut_and_changed_on_a_page_of_its_own(house: House) {
        let body = "much <b>to</b> read\n\n".repeat(10_000);
        let input = json!({ "studio": "main", "title": "long", "body": body });
        let note = house.act("create_note", input).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&house);
        let path = format!("/notes/{note}");
        let page = visitor.html(&path).body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert!(page.contains(&format!("of 210,000 characters. <a href=\"{path}.md\">All of it</a>")), "{page}");
        assert!(page.contains(&format!("<a href=\"{path}/actions/update_note\">")) && !page.contains("name=\"body\""), "{page}");
        assert_eq!(visitor.markdown(&path).body.matches("much <b>to</b> read").count(), 10_000);
        let form = visitor.html(&format!("{path}/actions/update_note")).body;
        assert_eq!(form.matches("much &lt;b&gt;to&lt;/b&gt; read").count(), 10_000);

        let pad = "remember this\n".repeat(600);
        house.agent("bob");
        house.act("set_scratchpad", json!({ "agent": "bob", "content": pad })).unwrap();
        assert!(!visitor.html("/agents/bob").body.contains("name=\"content\""));
        let form = visitor.html("/agents/bob/actions/set_scratchpad").body;
        assert_eq!(form.matches("remember this").count(), 600);
        assert!(form.contains("name=\"if_revision\" value=\"1\""), "{form}");
    }

    fn a_list_for_people_is_short_and_goes_on(house: House) {
        for number in 1..=120 {
            house.act("create_note", json!({ "studio": "main", "title": format!("n{number}") })).unwrap();
        }
        let visitor = Visitor::person(&house);
        for (path, rows) in [("/events?limit=10000", 100), ("/notes?limit=10000", 100)] {
            let page = visitor.html(path).body;
            assert_eq!((page.matches("<tr><td").count(), page.len() < PAGE_MAX), (rows, true), "{path}");
            let next = page.split("rel=next href=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().replace("&amp;", "&");
            let rest = visitor.html(&next).body;
            assert!(rest.matches("<tr><td").count() >= 20 && !rest.contains(">n120<"), "{next}: {rest}");
        }
        assert_eq!(visitor.json("/notes?limit=10000").data().as_array().unwrap().len(), 120);
        assert!(visitor.json("/events?limit=10000").data().as_array().unwrap().len() > 120);
        assert_eq!(visitor.html("/notes?limit=0").status, 422);
    }
}
