use forebay_engine::seal_text;

use super::*;
use crate::ids::ClusterId;

#[test]
fn documents_of_both_formats_are_read() {
    for format in FORMATS {
        let bytes = written(format, "text").unwrap();
        assert_eq!(parsed_as("a", &bytes), Ok((format, "text".to_owned())));
    }
    // As a program wrote it that did not say which one it is.
    let bytes = seal_text(b"{\"forebay_document\":1,\"content\":7}".to_vec());
    assert_eq!(parsed::<u64>("a", &bytes), Ok(7));
}

#[test]
fn a_newer_document_says_which_program_reads_it() {
    let newer = format!(
        "{{\"forebay_document\":{},\"program\":\"9.8.7\",\"content\":{{\"unknown\":1}}}}",
        NEWEST_FORMAT + 1
    );
    let refused = parsed::<Head>("head", &seal_text(newer.into_bytes())).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("format 3") && text.contains("forebay 9.8.7"),
        "{text}"
    );
    assert!(text.contains("1 to 2"), "{text}");
}

#[test]
fn a_format_that_never_was_is_damage() {
    let bytes = written(0, "text").unwrap();
    let refused = parsed::<String>("a", &bytes);
    assert!(
        matches!(refused, Err(ModelError::Damaged { .. })),
        "{refused:?}"
    );
}

/// Else a node of the program before could not read it.
#[test]
fn a_model_without_plans_has_nothing_of_format_2() {
    let mut count = 0;
    let next_name = || {
        count += 1;
        DocRef::new(&count.to_string())
    };
    let (documents, roots) = Model::default().write(1, next_name).unwrap();
    assert_eq!(roots.keys().collect::<Vec<_>>(), ["work"]);
    for bytes in documents.values() {
        let text = String::from_utf8(bytes.clone()).unwrap();
        for field in ["plan", "before", "replicas_held", "rebalances", "drained"] {
            assert!(!text.contains(field), "{field} in {text}");
        }
    }
    let head = Head {
        roots,
        ..Head::first(ClusterId(1), 1)
    };
    let read = Model::read(&head, &documents, &Model::default());
    assert_eq!(read, Ok(Model::default()));
}
